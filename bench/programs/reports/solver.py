"""Steps of Runge and Kutta for `flow_without_adjoint.py`."""


def step(function, time, y, size):
    first = function(time, y)
    second = function(time + size / 2, y + first * size / 2)
    third = function(time + size / 2, y + second * size / 2)
    fourth = function(time + size, y + third * size)
    return y + (first + 2 * second + 2 * third + fourth) * size / 6


def integrate(function, y, times, step=step):
    values = [y]
    for before, after in zip(times[:-1], times[1:]):
        y = step(function, before, y, after - before)
        values.append(y)
    return values
