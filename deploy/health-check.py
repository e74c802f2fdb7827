# ruff: noqa: INP001  # It is a program of the image, not of a package.
"""
Exits with 0 if the broker in this container serves topics, and with 1 if not.

A broker with TLS serves HTTPS.  Its certificate is not verified, because the names in
it are those by which clients know the broker.
"""

import os
import ssl
import sys
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

TIMEOUT_S = 5
ADDRESS = f"127.0.0.1:{os.environ.get('DANUBE_LISTEN__HTTP_PORT', '8080')}/readyz"

context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
problems = []
for scheme in ("http", "https"):
    try:
        urlopen(f"{scheme}://{ADDRESS}", timeout=TIMEOUT_S, context=context)  # noqa: S310
    except HTTPError as error:
        sys.exit(error.read(1000).decode(errors="replace"))
    except (OSError, HTTPException) as error:
        problems.append(f"{scheme}: {error}")
    else:
        sys.exit(0)
sys.exit("; ".join(problems))
