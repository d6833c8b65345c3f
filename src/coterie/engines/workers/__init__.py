"""Worker processes that share out the portions of a question, here or on a Ray cluster.

backend         who does what, and what happens when a worker dies
processes       workers that are processes of this machine (those of Ray are in `engines.ray`)
worker          what happens inside a worker
shared_memory   tensors that several processes see, or that are on their way to Ray
"""
