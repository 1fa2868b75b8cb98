"""What Inductor times: all that it would, but for max-autotune."""

from types import SimpleNamespace

from plimsoll_agent.trials import autotune


def tuner_of(configs, **inductor_meta):
    """Inductor's tuner of a kernel, with so many configurations, after the agent has seen its module; and what the agent said."""

    class CachingAutotuner:
        def __init__(self):
            self.configs, self.inductor_meta = [f"config {i}" for i in range(configs)], inductor_meta

        def _coordinate_descent_tuning(self, launcher):
            raise AssertionError("the phantom finds out nothing by it")

    said = []
    module = SimpleNamespace(CachingAutotuner=CachingAutotuner)
    autotune._fewer_configs(module, say=lambda: said.append(True))
    return module.CachingAutotuner(), bool(said)


def test_the_handful_of_an_ordinary_kernel_is_timed_whole():
    tuner, said = tuner_of(4, max_autotune=False, max_autotune_pointwise=False)
    assert tuner.configs == ["config 0", "config 1", "config 2", "config 3"] and not said


def test_of_many_two_are_timed_because_one_is_not():
    for mode in autotune.MANY:
        tuner, said = tuner_of(30, **{mode: True})
        assert tuner.configs == ["config 0", "config 1"] and said


def test_what_is_timed_is_timed_twice():
    class InductorBenchmarker:
        def benchmark_gpu(self, timed, estimation_iters=5, memory_warmup_iters=100, benchmark_iters=100):
            return [timed() for _ in range(benchmark_iters)], memory_warmup_iters

    autotune._fewer_times(SimpleNamespace(InductorBenchmarker=InductorBenchmarker))
    bench = InductorBenchmarker().benchmark_gpu
    assert bench(lambda: 7) == ([7, 7], 1)
    assert bench(lambda: 7, benchmark_iters=3) == ([7, 7, 7], 1), "who says how often is asked so often"
    autotune._fewer_times(SimpleNamespace())  # Before PyTorch 2.6 there was none.


def test_of_a_kind_the_first_is_kept():
    assert autotune.of_a_kind(["a1", "b1", "a2", "?"], lambda it: None if it == "?" else it[0]) == ["a1", "b1", "?"]


def test_of_a_kernel_of_triton_two_are_timed_that_fit():
    compiled = []

    class Autotuner:
        def prune_configs(self, kwargs):
            return range(6)

        def _bench(self, *args, config, **meta):
            compiled.append(config)
            return [float("inf")] * 3 if config == 0 else [0.1, 0.1, 0.1]

        def run(self):
            timings = {it: self._bench(config=it)[0] for it in self.prune_configs({})}
            return min(timings, key=timings.get)

    said = []
    autotune._fewer_timed(SimpleNamespace(Autotuner=Autotuner), say=lambda: said.append(True))
    tuner = Autotuner()
    assert tuner.run() == 1 and compiled == [0, 1, 2] and said
    # Of another size it is tuned again.
    assert tuner.run() == 1 and compiled == [0, 1, 2, 0, 1, 2]


def test_the_selector_is_told_when_the_program_makes_it():
    # Making it asks for the current GPU, and a program that forks has not used CUDA before.
    class AlgorithmSelectorCache:
        def __init__(self):
            self.functions = []

        def add_preprocessing_fn(self, function):
            self.functions.append(function)

    class TritonTemplateCaller:
        pass

    said = []
    autotune._fewer_choices(SimpleNamespace(TritonTemplateCaller=TritonTemplateCaller, AlgorithmSelectorCache=AlgorithmSelectorCache), say=lambda: said.append(True))
    (fewer,) = AlgorithmSelectorCache().functions
    choices = [TritonTemplateCaller() for _ in range(5)]
    assert fewer(choices) == choices[:2] and said
