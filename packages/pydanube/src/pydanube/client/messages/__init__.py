"""Messages, their ids, values and schemas, as programs see them."""
