"""One rank of a job, without the other ranks.

    imagined            launchers, rendezvous, and everything else that needs other ranks
    imagined_store      the key-value store of the ranks
    object_collectives  Python objects that ranks send each other
    first_gpu           lines that open GPU 0 in every rank
    named               ranks that the script's text treats unlike others
    meshes              meshes of many devices
    consolidation       states of optimizers that ranks send each other
"""
