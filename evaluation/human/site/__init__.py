"""The rating site: pages, links, guards, and what raters and the organiser see."""
