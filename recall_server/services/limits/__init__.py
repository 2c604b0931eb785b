"""Call rates and model budgets."""
