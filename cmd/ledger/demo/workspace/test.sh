# Tests of balance.sh.
. ./balance.sh

got=$(balance 100 -30 5)
if [ "$got" != 75 ]; then
	echo "FAIL test.sh: balance 100 -30 5 = $got, want 75"
	exit 1
fi
echo "ok test.sh"
