"""What an operator runs to back up a Postgres database."""

from pathlib import Path

from psycopg.conninfo import conninfo_to_dict


def dump_command(url: str, user: str, target: Path) -> list[str]:
    """`pg_dump` of the database of `url`; it asks for the password of `user`, or finds it in
    PGPASSWORD or ~/.pgpass.
    """
    given = conninfo_to_dict(url)
    where = [
        part
        for option, name in (("--host", "host"), ("--port", "port"), ("--dbname", "dbname"))
        if given.get(name)
        for part in (option, str(given[name]))
    ]
    return ["pg_dump", "--format=custom", "--file", str(target), *where, "--username", user]
