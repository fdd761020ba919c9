"""The scripted agent: a program that behaves like a coding agent's terminal interface and follows directives.

It reads its task from `$AO_TASK_FILE`, the first `$AO_DEMO_TASK` characters (or a script from `$AO_DEMO_SCRIPT`), obeys
`[[name: argument]]` in it, reports to `$AO_SPOOL` and reads messages from its terminal, one turn each. docs/agents/demo.md lists the
directives. It needs only the standard library, so that it starts as fast as Python does; its modules import only each other.
`plugins/agents/demo.py` starts it:

    python -I -S -c "…; from demo_agent.program import main; main()" FOLDER [--resume]
"""
