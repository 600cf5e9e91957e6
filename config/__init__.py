"""How the parts are put together: settings, addresses, the web process, the workers, the embedded servers."""
