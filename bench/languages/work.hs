-- SPDX-License-Identifier: Apache-2.0
--
-- Haskell: light threads on two of the system's, switched by a timer.
import Control.Concurrent
import Control.Monad
import System.Environment
import System.IO

chain :: Int -> Int
chain first = go first 0 2000
  where
    go _ total 0 = total
    go x total i = let y = (x * 48271 + i) `mod` 2147483647 in go y ((total + y + length (show y)) `mod` 1000003) (i - 1 :: Int)

oneRound :: Int -> Int -> IO Int
oneRound total number = do
  answers <- forM [1 .. 4] $ \k -> do
    answer <- newEmptyMVar
    _ <- forkIO (putMVar answer $! chain (number * 4 + k))
    return answer
  foldM (\sum answer -> (\part -> (sum * 7 + part) `mod` 1000003) <$> takeMVar answer) total answers

main :: IO ()
main = do
  [argument] <- getArgs
  let rounds = read argument
  foldM_
    ( \total step -> do
        next <- foldM oneRound total [step * rounds .. (step + 1) * rounds - 1]
        putStrLn (show step ++ " " ++ show next)
        hFlush stdout
        return next
    )
    0
    [0 .. 19]
