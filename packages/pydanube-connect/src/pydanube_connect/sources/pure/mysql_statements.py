"""
The statements that the log of MySQL and MariaDB has as text.  Pure.

These are the limits of transactions, and statements that change tables as a whole.
"""

from __future__ import annotations

import re

# Nothing is tried twice: a comment ends where it first can, whatever follows.
_SPACE = r"(?>\s|/\*.*?\*/|(?:--(?=\s)|\#)[^\n]*\n)*+"
_LETTER = r"[\w$\u0080-\uffff]"
_NAME = rf'(`(?:[^`]|``)++`|"(?:[^"]|"")++"|{_LETTER}++)'
_TRUNCATE = re.compile(
    rf"{_SPACE}TRUNCATE(?!{_LETTER}){_SPACE}(?:TABLE(?!{_LETTER}){_SPACE})?"
    rf"(?:{_NAME}{_SPACE}\.{_SPACE})?{_NAME}"
    rf"{_SPACE}(?:\Z|;|--|\#|(?:NO)?WAIT\b)",
    re.IGNORECASE | re.DOTALL,
)


def ends_transaction(statement: str) -> bool:
    """Return whether *statement* ends a transaction, or is one by itself."""
    word = statement.lstrip().partition(" ")[0].upper()
    return word not in {"BEGIN", "SAVEPOINT", "XA"} and not (
        statement.upper().startswith("ROLLBACK TO")
    )


def truncated_table(statement: str, database: str) -> tuple[str, str] | None:
    """
    Return the database and the name of the table that *statement* empties.

    *database* is that of the session.  None: it is another statement.
    """
    found = _TRUNCATE.match(statement)
    if found is None:
        return None
    schema, table = found.groups()
    return database if schema is None else _bare(schema), _bare(table)


def _bare(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
