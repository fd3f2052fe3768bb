"""The studio: a local web app over the library, guarded as if the web were hostile."""
