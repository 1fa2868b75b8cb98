"""A run with another input than the script's own.

    worst_sequence  every batch as long as the longest one that may come
    worst_batches   the worst batches of the data first, where sizes differ
    largest_draws   the largest size first, where a script draws sizes by itself
    worst_size      every image as large as the largest one that may come
    processed_images  the same where an image processor of transformers makes the tensors
    aside           asks the data in a child process, where nothing of the script notices
    samples         whether a sample is far larger than those of the batches seen; every batch with that one
    padding         whether the batches of the training are mostly padding
    unpadded        batches without the places that are padding in all of their texts
    half            batches with half as many samples, or images of half the size
    edits           other text in files of the script: a number, a framework's switches
"""
