"""One multilingual teacher, many aligned students."""
