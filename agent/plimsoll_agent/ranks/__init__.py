"""One rank of a job, where the others are not there.

    imagined            the launchers and what else needs other ranks
    imagined_store      their key-value store
    object_collectives  Python objects that ranks send each other
    consolidation       states of optimizers that they tell each other
"""
