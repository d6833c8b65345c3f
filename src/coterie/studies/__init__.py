"""What a person does: train, resume, compare, place newcomers, inspect, audit, serve.

Every run takes the same road, whether its clients are in this process or on other machines.

May touch: core, words, tasks, methods, models, data, engines, attacks, runs, config, report,
trackers, audit.
"""
