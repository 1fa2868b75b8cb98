"""Watches a training run and writes it down.

    recording       the file of notes, one JSON object a line
    guard           our failures never become the user's
    refusal         the one failure that is meant for the user: what was asked for does not suit the program
    after_import    something to be done with a module once it is there
    frames          which line of a stack is the user's own
    memory          PyTorch's own memory history: start it, count with it, dump it
    host            what this process has of the host's memory
    host_random     where the random numbers of Python and NumPy are
    phases          forward, backward, optimizer, zero_grad, evaluation: where each begins and ends
    training_steps  what one training step is, for any number of optimizers
    steady          has memory stopped changing?
    epochs          end early while they are to
    later           what comes after the first steps: the end of an epoch, its validation, its checkpoint
    hints           does the script speak of an evaluation?
    trainers        those of libraries are asked to validate now
    training_calls  an optimizer's step, zero_grad and backward: seen where they begin and end
    compiled        steps aside at the first torch.compile
    uncaught        an error that ends the program, a thread or a child of multiprocessing
    failures        what follows from such an error, and from memory that ran out
    process         how old this process is, and whether it is a child of multiprocessing
    stopping        ends a run that has shown enough or has failed, politely
    modules         which module is running, for the allocations made inside
    owners          which model a module belongs to, and its path there
    gradients       whether a call of a module is training
    nested          tensors in what a call is given and what it returns
    tensors         which address is which parameter, gradient, state or input
    oom             where memory ran out
    first_step      what the first step took, to compare a plan's promise with
    sampling        stacks and modules in some steps only, where seeing them in all would slow training down
    stopwatch       how long steps take on the device
    below           an operation that a dispatch mode has caught goes on as without the mode
    meter           what a step computes and moves, in runs made for that
    ending          the last words of a process
    sudden_end      says them where Python would not: os._exit, a signal that the process sends itself
"""

from __future__ import annotations
