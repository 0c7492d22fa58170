"""Scripts that write parts of the documentation; nothing in the package imports them."""
