"""The local issue tracker."""
