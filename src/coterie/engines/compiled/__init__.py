"""Training compiled for a network's shapes: all steps of a client in one call, on one core.

backend         the backend: who trains alone, who is tested together
host, planning  whether code can be compiled here; plan: what is compiled
loops           loops and vectors in LLVM's language, in which all kernels are written
dense, convolution, pooling, activation, samples, step      the kernels, layer by layer
program         a plan's kernels as one program; objects: machine code and its cache; linking: the
                code in memory, without LLVM where it was compiled before
network         the code at work: its memory, and what is checked before any pointer is used
"""
