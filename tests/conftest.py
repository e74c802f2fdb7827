"""What holds for all tests."""

import os

# A worker of pytest-xdist would hand its own search path down to every process that a
# test starts, also to those that are to do without our packages.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONPATH", None)
