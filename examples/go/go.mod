module gatepost.example/app

go 1.24

require gatepost.example/client v0.0.0

replace gatepost.example/client => ../../clients/go
