raise RuntimeError("this model cannot be loaded")
