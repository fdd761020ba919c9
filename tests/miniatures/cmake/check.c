int main(void) { return 2 * 2 == 4 ? 0 : 1; }
