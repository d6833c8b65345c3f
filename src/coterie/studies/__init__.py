"""What a person does: train, resume, compare, place newcomers, inspect, audit, serve.

Every run takes the same road, whether its clients are in this process or on other machines.

run             one run from its experiment file to its summary
remote          clients on other machines, who take that road too
finished        runs that are over: opened, their models taken away or asked, newcomers placed
comparison, reproduction, atlas     many runs: of methods, of a paper's table, of every difference
insight, audits                     how clients differ, what is sent, and what that discloses

May touch: core, words, tasks, methods, models, data, engines, attacks, runs, config, report,
trackers, audit.
"""
