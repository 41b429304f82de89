package main

import (
	"os"
	"testing"
)

func TestAReaderThatLeftIsSeen(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if readerLeft(int(writer.Fd())) {
		t.Error("it is said to have left while it is there")
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !readerLeft(int(null.Fd()), int(writer.Fd())) {
		t.Error("it is not said to have left when it has")
	}
}
