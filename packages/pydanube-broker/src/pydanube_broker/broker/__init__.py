"""The floors put together: topics, producers and subscriptions of one broker."""

from pydanube.model.extras import require

require("schemas", "a broker")
require("broker", "a broker")
