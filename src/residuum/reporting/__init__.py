"""From results to figures to one page."""
