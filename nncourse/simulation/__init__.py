"""A group simulated in one process: its members in turns, its links with times that are made up.

links.py says what a message costs, world.py carries messages and keeps the clocks, faults.py says in words what went
wrong, members.py runs a function on every member.
"""
