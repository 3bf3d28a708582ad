"""What is sent to the hub: models and stores, and the pages that their files say of them."""
