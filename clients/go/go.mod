module gatepost.example/client

go 1.24
