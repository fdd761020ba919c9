"""Commands about changes: review, merge, queue, conflicts, fix, plan, issues."""
