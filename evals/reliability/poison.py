"""The word that kills whoever embeds it, where `evals.children.mortal_worker` is loaded."""

POISON = "arsenic-for-workers"
