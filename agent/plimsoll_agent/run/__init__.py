"""Watches a training run and records it.

    recording       the file of notes, one JSON object a line
    guard           failures of the agent never reach the user's program
    chain           what an exception came from
    refusal         the one failure that the user sees: a remedy or an option does not suit the program
    after_import    calls a function with a module once it is imported
    frames          which line of a stack is the user's own
    memory          PyTorch's own memory history: start it, count with it, dump it
    host            the host memory of this process
    host_random     the random states of Python and NumPy
    phases          forward, backward, optimizer, zero_grad, evaluation, saving, merging: where each begins and ends
    training_steps  what one training step is, for any number of optimizers
    steady          has memory stopped changing?
    epochs          ends epochs early
    later           what comes after the first steps: the end of an epoch, its validation, its checkpoint
    extent          how many steps the script's own loops come to
    saving          where libraries save a model, and merge adapters into it
    intervals       has an evaluation every so many steps come soon
    turning         what a later turn of a loop does that none so far did
    hooks           functions that a trainer calls with its epoch or its step
    effort          a clock for budgets, which stands still while other programs have the processor
    preparing       what libraries run to prepare something: neither training nor an evaluation
    hints           whether the text of the script mentions an evaluation or a checkpoint
    trainers        makes trainers of libraries validate now
    training_calls  an optimizer's step, zero_grad and backward: where they begin and end
    idle_checkpoints  which modules checkpoint in training mode only
    checkpoints     where checkpointing cuts the graph of what is to be trained
    compiled        stops watching calls of modules at the first call of what torch.compile made
    uncompiled      kernels that nothing on this machine can compile
    uncaught        an error that ends the program, a thread or a child of multiprocessing
    failures        ends what waits for ever after such an error, or after memory ran out
    process         how old this process is, and whether it is a child of multiprocessing
    stopping        ends a run that has shown enough or has failed, politely
    modules         which module is running, for the allocations made inside
    operands        what the names in the line that ran out stand for
    owners          which model a module belongs to, and its path there
    gradients       whether a call of a module is training
    nested          tensors in what a call is given and what it returns
    batch_sizes     whether an evaluation's batch is much larger than those of the training
    tensors         which address is which parameter, gradient, state or input
    unfolded        how large windows are that overlap
    graphs          what autograd's graph shows: attention written out, repeated casts, gradients for no optimizer
    beside          graphs that no backward pass goes through, beside one that it does
    weights         what weights are packed, frozen or adapted
    written         statements that take far more memory than another form of the same
    ahead           what threads of the script put where nothing limits them
    drained         queues of that kind that were empty at last
    keepers         who holds the tensors that stay allocated
    oom             where memory ran out
    first_step      the memory of the first step, to compare with a plan's prediction
    sampling        stacks and modules in some steps only, where recording them in all would slow training down
    stopwatch       how long steps take on the device
    below           an operation that a dispatch mode has caught runs on as without the mode
    meter           counts the arithmetic and the bytes of a step, in runs made for that
    ending          the last lines that a process records
    sudden_end      records them where Python runs no exit function: os._exit, a signal that the process sends itself, SIGTERM and SIGHUP
"""

from __future__ import annotations
