"""`run_plugin`, as sessions started by the release before name it. To be removed in the next release."""
