autoreconf -i
