"""Views: the one source of what is shown, whoever draws it."""
