# balance prints the sum of its arguments, the entries of an account.
balance() {
	sum=0
	while [ $# -gt 1 ]; do
		sum=$((sum + $1))
		shift
	done
	echo "$sum"
}
