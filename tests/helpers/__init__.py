"""What tests share: commands as users call them, processes and their ends, small worlds, pages, raters."""
