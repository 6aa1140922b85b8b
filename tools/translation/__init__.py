"""What tools/translate.py is made of: units of text, catalogues, and what is written from them."""
