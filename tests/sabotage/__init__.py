"""Breaks the product on purpose, one control at a time, and checks that the tests notice.

A test that stays green whatever the product does proves nothing: `make sabotage`.
"""
