"""What things cost, in counts that no machine changes: modules, statements, commits, programs, requests, bytes, timers.

Each number is what it takes today, a little more where chance plays a part. Who makes one grow sees it here, and either finds out why or
writes the new number down and says in the commit what it is for. Times are for `make bench`.
"""
