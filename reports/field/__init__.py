"""How far predictions are from speeds that people published of their own machines."""
