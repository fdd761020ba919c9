test $((2 * 2)) -eq 4
