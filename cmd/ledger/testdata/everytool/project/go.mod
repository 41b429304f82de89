module example.org/greetings

go 1.22
