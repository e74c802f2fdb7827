"""The web console: pages in a browser, served by a process of its own."""
