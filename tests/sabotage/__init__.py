"""This program breaks the product on purpose, one control at a time, and checks that the tests
notice.

A test that passes whatever the product does proves nothing: `make sabotage`.
"""
