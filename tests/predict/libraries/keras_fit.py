"""Keras on PyTorch: compile and fit."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy

layers = [keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10)]
model = keras.Sequential([keras.Input((28, 28, 1)), *layers])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(numpy.random.rand(128, 28, 28, 1).astype("float32"), numpy.random.randint(0, 10, 128), batch_size=32, epochs=2, verbose=2)
