"""The language models that can be asked: their names, their servers, and the models behind them."""
