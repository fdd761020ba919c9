def double(number):
    """
    >>> double(2)
    4
    """
    return number * 2
