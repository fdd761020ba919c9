"""Tests with homes of earlier versions, and with damaged homes."""
